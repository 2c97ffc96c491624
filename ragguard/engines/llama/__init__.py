"""Language models of the Llama architecture on NumPy alone: nano, which ships, and models from GGUF files."""
