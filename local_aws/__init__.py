"""An AWS for one machine: an emulation to prove a deploy on before anything bills."""
