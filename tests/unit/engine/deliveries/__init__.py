"""Random conversations about deliveries, with a model of what each end has to receive."""
