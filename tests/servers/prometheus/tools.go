//go:build tools

// Package servers pins promtool, which checks the alert rules. `tests/servers/setup` builds it into the user's cache
// directory. It has a module of its own because Prometheus' module excludes versions, which `go install` refuses.
package servers

import (
	_ "github.com/prometheus/prometheus/cmd/promtool"
)
