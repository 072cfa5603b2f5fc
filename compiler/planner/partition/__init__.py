"""The search for layers, stages and micro-batches: tasks and their times, the simulator, layer and stage partitions.

It must not know how plans are measured or chosen (the planner around it does), nor how code is made of a schedule.
"""
