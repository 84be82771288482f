"""Whole training batches in one GPU kernel each: draw, score, differentiate, add to the gradient buffers.

The GPU twin of `unkgcp.training.kernels`: one program a fact, which keeps everything about it in registers and
touches memory only to read rows and to add gradients. Same formulas, same random numbers as the autograd terms,
against which they are tested. Importing the kernels needs Triton; `launch` imports them when there is a GPU.
"""
