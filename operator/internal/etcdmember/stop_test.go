package etcdmember

import (
	"net/url"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/server/v3/embed"
)

func TestAMemberIsAloneIfItKnowsNoOther(t *testing.T) {
	for name, test := range map[string]struct {
		peers map[string]float64
		want  bool
	}{
		"itself":                   {map[string]float64{"a": 1}, true},
		"others that were removed": {map[string]float64{"a": 1, "b": 0}, true},
		"another one":              {map[string]float64{"a": 1, "b": 1}, false},
		"none, before it starts":   {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			peers := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "etcd_network_known_peers"}, []string{"Local", "Remote"})
			for peer, known := range test.peers {
				peers.WithLabelValues("a", peer).Set(known)
			}
			registry := prometheus.NewRegistry()
			registry.MustRegister(peers)
			if got := Alone(registry); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestARealMemberKnowsThatItIsAlone(t *testing.T) {
	if Alone(prometheus.DefaultGatherer) {
		t.Error("a member is alone before it has started")
	}
	config := embed.NewConfig()
	config.Dir, config.LogLevel = t.TempDir(), "error"
	local := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config.ListenClientUrls, config.ListenPeerUrls = local, local
	member, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close()
	<-member.Server.ReadyNotify()
	if !Alone(prometheus.DefaultGatherer) {
		t.Error("it does not know")
	}
	ended := make(chan struct{})
	StopAlone(prometheus.DefaultGatherer, func() { close(ended) })()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("it does not end")
	}
}
