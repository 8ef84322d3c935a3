package server

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// registerStorageMetrics registers metrics about conditions in which the storage refuses writes or the server refuses requests.
func (s *server) registerStorageMetrics() {
	full := metrics.NewGaugeFunc(&metrics.GaugeOpts{
		Name: "kcp_storage_full", Help: "1 while the embedded etcd or its disk is full, and writes are refused.", StabilityLevel: metrics.ALPHA,
	}, func() float64 {
		if s.backend.CheckRoom() != nil {
			return 1
		}
		return 0
	})
	age := metrics.NewGaugeFunc(&metrics.GaugeOpts{
		Name: "kcp_authorization_staleness_seconds",
		Help: "Maximum time that the objects that authorize requests are behind etcd. 0 with an embedded etcd to which only this server " +
			"writes.",
		StabilityLevel: metrics.ALPHA,
	}, func() float64 {
		if s.fresh.Limit == 0 {
			return 0
		}
		return s.fresh.Age().Seconds()
	})
	legacyregistry.RawMustRegister(full, age)
}
