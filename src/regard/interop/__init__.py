"""Models in and out: runs made from other toolkits' folders, and folders that other toolkits open."""
