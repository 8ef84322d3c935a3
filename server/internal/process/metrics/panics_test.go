package metrics

import (
	"net/http"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/component-base/metrics"
)

func TestPanicsAreCounted(t *testing.T) {
	handlers := slices.Clone(runtime.PanicHandlers)
	defer func() { runtime.PanicHandlers = handlers }()
	registry := metrics.NewKubeRegistry()
	if err := CountPanics(registry.Register); err != nil {
		t.Fatal(err)
	}
	for _, cause := range []any{"a defect", http.ErrAbortHandler} {
		func() {
			defer func() { _ = recover() }()
			defer runtime.HandleCrash()
			panic(cause)
		}()
	}
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || families[0].GetMetric()[0].GetCounter().GetValue() != 1 {
		t.Errorf("got %v, %v, want one panic", families, err)
	}
}
