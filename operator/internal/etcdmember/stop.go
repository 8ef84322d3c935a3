package etcdmember

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// lastRequests is how long a member without others answers requests in progress after SIGTERM.
const lastRequests = time.Second

// StopAlone returns a function for SIGTERM, which ends a member without others a second later. etcd itself waits seven seconds for watches
// to end, in which it accepts no requests. Members with others should wait: they transfer leadership after it, and others accept requests.
// What is acknowledged is on the volume in both cases.
func StopAlone(metrics prometheus.Gatherer, exit func()) func() {
	return func() {
		if Alone(metrics) {
			time.AfterFunc(lastRequests, exit)
		}
	}
}

// Alone reports whether a member of etcd, whose metrics these are, is the only one of its cluster. It is false if that is unknown.
func Alone(metrics prometheus.Gatherer) bool {
	families, err := metrics.Gather()
	if err != nil {
		return false
	}
	known := false
	for _, family := range families {
		if family.GetName() != "etcd_network_known_peers" {
			continue
		}
		for _, m := range family.GetMetric() {
			ids := map[string]string{}
			for _, label := range m.GetLabel() {
				ids[label.GetName()] = label.GetValue()
			}
			if m.GetGauge().GetValue() == 0 {
				continue // it was removed
			}
			if known = true; ids["Local"] != ids["Remote"] {
				return false
			}
		}
	}
	return known
}
