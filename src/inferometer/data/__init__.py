"""Image sets and their labels, decoding, preprocessing, order and splits, batches, synthetic input.

================  ==========================================================================
a set             `imageset` (`open_set`, order, splits); how it lies: `layouts`, `listing`,
                  `archives` (`zips`, `tars`); its labels: `labelling` (reading files of them),
                  `matching` (to images), `numbering` (to classes), `ilsvrc2012`; its files'
                  content: `source`
an image          `pixels` (from bytes to pixels), through `decode` (Pillow) or `jpeg` and
                  `resample` (the extra ``fast``; machine code in `compiled`)
a preprocessing   `preprocess`, `normalise`; those to try when none is known: `hypotheses`
batches           `loader`; without images `synthetic`
================  ==========================================================================
"""
