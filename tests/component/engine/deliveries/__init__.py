"""Random conversations about deliveries, with a model of the reports that each end must receive."""
