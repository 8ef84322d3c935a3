package sharding

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

// sample matches a sample of a metric, with its labels.
var sample = regexp.MustCompile(`(?m)^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})? \S+$`)

// The dashboards in config/grafana are tested in test/prometheus, which writes the metrics and labels that they use into the file.
func TestProcessesHaveTheMetricsOfTheDashboards(t *testing.T) {
	content, err := os.ReadFile("../../prometheus/testdata/dashboards.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/clusters/root/api/v1/namespaces", "/clusters/root:dashboards/api/v1/namespaces"} { // one is refused
		installation.Proxies[0].Server().Get(t, kcptest.Masters, path)
	}
	watcher, err := installation.Root().Server().Named("root").Dynamic(t, kcptest.Masters).Resource(kcptest.Workspaces).Watch(t.Context(),
		metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	of := func(process *sharded.Process) func() (int, string) {
		return func() (int, string) { return process.Server().Get(t, kcptest.Masters, "/metrics") }
	}
	certificate, err := installation.PKI.Client(kcptest.Masters)
	if err != nil {
		t.Fatal(err)
	}
	administrator := as(t, certificate)
	for dashboard, scrape := range map[string]func() (int, string){
		"server": of(installation.Root()), "front-proxy": of(installation.Proxies[0]),
		"cache-server": func() (int, string) { // it also has metrics of shards
			code, metrics := administrator.send(http.MethodGet, installation.Cache.URL+"/metrics", "", nil)
			_, more := of(installation.Root())()
			return code, metrics + more
		},
	} {
		t.Run(dashboard, func(t *testing.T) {
			used := 0
			kcptest.Eventually(t, "it has all metrics", func(context.Context) error {
				code, metrics := scrape()
				if code != http.StatusOK {
					return fmt.Errorf("/metrics returns %d %.200s", code, metrics)
				}
				used = 0
				for line := range strings.Lines(string(content)) {
					of, metric, _ := strings.Cut(strings.TrimSpace(line), " ")
					if of != dashboard {
						continue
					}
					used++
					if err := exposed(metrics, metric); err != nil {
						return err
					}
				}
				return nil
			})
			if used == 0 {
				t.Error("the dashboard uses no metrics")
			}
		})
	}
}

// exposed returns an error unless a process has a sample of a metric with labels, such as metric{a,b}.
func exposed(metrics, wanted string) error {
	name, list, _ := strings.Cut(strings.TrimSuffix(wanted, "}"), "{")
	for _, found := range sample.FindAllStringSubmatch(metrics, -1) {
		if found[1] == name && !slices.ContainsFunc(strings.FieldsFunc(list, func(r rune) bool { return r == ',' }), func(label string) bool {
			return !strings.Contains(found[2], "{"+label+"=") && !strings.Contains(found[2], ","+label+"=")
		}) {
			return nil
		}
	}
	return fmt.Errorf("there is no metric %s", wanted)
}
