"""Language models of the Llama architecture with NumPy only: nano, which ships, and models from GGUF files."""
