"""What `train_demo_model.py` is made of, beside the generator in `relquery.demo`."""
