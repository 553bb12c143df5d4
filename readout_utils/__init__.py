"""Reading spatial direction out of frozen vision-language encoders.

The modules, in the order in which the book needs them: ``captions``, ``scenes``, ``encoders``,
``alignment``, ``readouts``, ``symmetry``, ``deflation``, ``benchmarks``, ``evaluation``, ``geometry``,
``jacobian``, ``binding``, ``zoo``, ``hard_positives``, ``figures``.
"""

__version__ = "0.1.0"
