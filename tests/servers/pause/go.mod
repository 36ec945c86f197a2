module larder.invalid/tests/servers/pause

go 1.26.0
