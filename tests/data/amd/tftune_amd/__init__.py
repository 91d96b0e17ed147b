"""AMD's GPUs as a device of tftune, from outside of it: a stand-in that no real card has been tried with."""
