"""How the models that ship with ragguard are made; not part of the package."""
