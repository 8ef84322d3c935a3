package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"

	admissionmetrics "k8s.io/apiserver/pkg/admission/metrics"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating/metrics"
	componentmetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

func TestNamesOfTenantsCreateNoSeries(t *testing.T) {
	flags := componentmetrics.NewOptions()
	WithoutNames(flags)
	flags.Apply()
	ctx := t.Context()
	for n := range 100 {
		name := fmt.Sprintf("tenants-%d", n)
		admissionmetrics.Metrics.ObserveWebhookFailOpen(ctx, name, "admit")
		admissionmetrics.Metrics.ObserveWebhookRejection(ctx, name, "admit", "CREATE", "calling_webhook_error", 500)
		metrics.Metrics.ObserveAdmission(ctx, time.Second, name, name, metrics.ValidationNoError)
	}
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, family := range families {
		for _, series := range family.Metric {
			for _, label := range series.Label {
				if strings.HasPrefix(label.GetValue(), "tenants-") {
					t.Fatalf("%s has a series for the name %s", family.GetName(), label.GetValue())
				}
				if label.GetValue() == "unexpected" {
					found++
				}
			}
		}
	}
	if found == 0 {
		t.Error("nothing was counted")
	}
}
