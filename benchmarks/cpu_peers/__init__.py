"""Files in GGUF beside llama.cpp and OpenVINO GenAI on the same CPU."""
