// Package prometheus proves, by Prometheus' own code, that the alerts in config/prometheus and docs/examples can be loaded,
// and that each is raised when it should be, and not when all is well. It is a module of its own so that no other module
// depends on Prometheus.
package prometheus
