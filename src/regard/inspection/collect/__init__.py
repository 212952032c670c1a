"""Collection of an exhibit, the data of pages and pictures, from a run or from a `Look`."""
