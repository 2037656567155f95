"""A machine that configures itself when it boots: the first stage is its user data, the rest comes from the bundle."""
