"""Recurrent cells: the work beside their matrix products, a kernel a step, and whole layers made of them."""
