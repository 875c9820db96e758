"""Views: what each class of proxies is told, as messages made from the model.

A module per role of proxy. A resource is the pair of a view somebody asked for and a model item, so a new view costs
its own items and a new item costs its own views.
"""
