// Package prometheus tests, with the code of Prometheus, that the alerts in config/prometheus and docs/examples can be loaded, and that
// each is raised when it should be, and not when all is well. It is a separate module, because no other module should depend on
// Prometheus.
package prometheus
