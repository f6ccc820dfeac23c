"""A server on loopback that answers, bills and fails as providers do."""
