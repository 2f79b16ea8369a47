def improve(search): pass
