"""Keys and values on a device and in host memory."""
