"""Instructions that LLVM makes into machine code: of vectors, of tiles, of whole products."""
