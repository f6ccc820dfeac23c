"""Keys and values: on the device, in host memory, and rotated to other positions."""
