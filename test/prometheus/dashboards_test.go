package prometheus

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

var update = flag.Bool("update", false, "write the metrics of the dashboards to testdata")

// dashboard is a dashboard of Grafana.
type dashboard struct {
	Title, UID string
	Templating struct {
		List []struct{ Name, Query string }
	}
	Panels []panel
}

// panel is a panel or a row.
type panel struct {
	ID          int
	Title, Type string
	Datasource  struct{ UID string }
	GridPos     struct{ H, W, X, Y int }
	Targets     []struct {
		Expr, RefID string
		Datasource  struct{ UID string }
	}
}

func (p panel) overlaps(q panel) bool {
	a, b := p.GridPos, q.GridPos
	return a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H
}

// dashboards returns the dashboards in config/grafana, by their name.
func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob("../../config/grafana/*.json")
	if err != nil || len(files) != 4 {
		t.Fatalf("found %v (%v)", files, err)
	}
	byName := map[string]dashboard{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(content, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		byName[strings.TrimSuffix(filepath.Base(file), ".json")] = d
	}
	return byName
}

// ofTargets are labels that Prometheus adds to the samples of a process.
var ofTargets = []string{"namespace", "job", "pod"}

// query parses an expression of Grafana, after its variables have values.
func query(text string) (parser.Expr, error) {
	return language.ParseExpr(strings.NewReplacer("$__rate_interval", "5m", "$namespace", ".*", "$job", ".*").Replace(text))
}

// used returns the metrics of an expression, each with the labels that it selects or groups by.
func used(expression parser.Expr) []string {
	var all []string
	parser.Inspect(expression, func(node parser.Node, path []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		var names []string
		for _, matcher := range selector.LabelMatchers {
			if matcher.Name != labels.MetricName {
				names = append(names, matcher.Name)
			}
		}
		for _, outer := range path {
			if aggregation, ok := outer.(*parser.AggregateExpr); ok && !aggregation.Without {
				names = append(names, aggregation.Grouping...)
			}
		}
		names = slices.DeleteFunc(names, func(name string) bool {
			return slices.Contains(ofTargets, name) && !(name == "namespace" && strings.HasPrefix(selector.Name, "kcp_operator_"))
		})
		slices.Sort(names)
		all = append(all, fmt.Sprintf("%s{%s}", selector.Name, strings.Join(slices.Compact(names), ",")))
		return nil
	})
	return all
}

// The end-to-end tests check that the processes have the metrics in testdata/dashboards.txt.
func TestDashboardsAreValid(t *testing.T) {
	var all []string
	seen := map[string]bool{}
	for name, d := range dashboards(t) {
		if d.UID != "kcp-"+name || d.Title == "" {
			t.Errorf("%s has the UID %q and the title %q", name, d.UID, d.Title)
		}
		panels := 0
		for i, p := range d.Panels {
			if slices.ContainsFunc(d.Panels[:i], func(q panel) bool { return q.ID == p.ID || p.overlaps(q) }) || p.GridPos.X+p.GridPos.W > 24 {
				t.Errorf("%s: panel %q has the ID or the place of another", name, p.Title)
			}
			if p.Type == "row" {
				continue
			}
			panels++
			if key := name + p.Title; seen[key] || p.Title == "" || len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" {
				t.Errorf("%s: panel %q has no queries, no data source or the title of another", name, p.Title)
			}
			seen[name+p.Title] = true
			for _, target := range p.Targets {
				expression, err := query(target.Expr)
				if err != nil || target.Datasource.UID != "${datasource}" || target.RefID == "" {
					t.Errorf("%s: %s: %s: %v", name, p.Title, target.Expr, err)
					continue
				}
				for _, metric := range used(expression) {
					all = append(all, name+" "+strings.TrimSuffix(metric, "{}"))
				}
			}
		}
		if panels < 10 {
			t.Errorf("%s has only %d panels", name, panels)
		}
	}
	slices.Sort(all)
	got := strings.Join(slices.Compact(all), "\n") + "\n"
	const file = "testdata/dashboards.txt"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("run the tests with -update, because %s does not have the metrics of the dashboards:\n%s", file, got)
	}
}
