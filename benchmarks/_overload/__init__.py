"""Who still gets served when one caller floods: the same upstream behind several gateways, under open-loop load."""
