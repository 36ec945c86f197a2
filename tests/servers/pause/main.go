// Pause does nothing until it is told to end: the process that holds a pod together, and the one that test pods run.
// It is linked statically, so that it is all that an image needs.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	<-end
}
