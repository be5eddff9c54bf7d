# SPDX-License-Identifier: Apache-2.0
import unittest

import figures


class Figures(unittest.TestCase):
    def test_quantiles_are_of_the_samples(self):
        quantiles = dict(figures.quantiles_of(range(1000, -1, -1)))
        self.assertEqual((quantiles[0.0], quantiles[0.5], quantiles[0.99]), (0, 500, 990))
        self.assertEqual(set(dict(figures.quantiles_of([7.5])).values()), {7.5})

    def test_rounds_without_a_figure_count_for_nothing(self):
        self.assertEqual(figures.summary([3.0, None, 1.0, 2.0]), {"median": 2.0, "min": 1.0, "max": 3.0})
        self.assertIsNone(figures.summary([None, None]))
        self.assertIsNone(figures.summary([]))

    def test_ratios_are_of_neighbours(self):
        self.assertEqual(figures.ratios([2.0, 9.0, None, 8.0], [1.0, 3.0, 5.0, None]), [2.0, 3.0])
        self.assertEqual(figures.ratios([1.0], [0.0]), [])

    def test_the_middle_of_distributions(self):
        runs = [[(0.5, 1.0), (0.9, 5.0)], [], [(0.5, 3.0), (0.9, 6.0)], [(0.5, 2.0), (0.9, 9.0)]]
        self.assertEqual(figures.middle_quantiles(runs), [(0.5, 2.0), (0.9, 6.0)])
        self.assertEqual(figures.middle_quantiles([[], []]), [])


if __name__ == "__main__":
    unittest.main()
