package prometheus

import (
	"context"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
	"go.yaml.in/yaml/v3"
)

// files contain the alerts.
var files = []string{"../../config/prometheus/rules.yaml", "../../docs/examples/monitoring/prometheusrule.yaml"}

var language = parser.NewParser(parser.Options{})

func read(t *testing.T, file string, into any) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(content, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// alerts returns the alerts of the files, as parsed by Prometheus, by name.
func alerts(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	byName := map[string]rulefmt.Rule{}
	for _, file := range files {
		var object struct{ Spec map[string]any }
		read(t, file, &object)
		text, err := yaml.Marshal(object.Spec)
		if err != nil {
			t.Fatal(err)
		}
		groups, errs := rulefmt.Parse(text, false, model.UTF8Validation, language, promslog.NewNopLogger())
		if len(errs) > 0 {
			t.Fatalf("%s: %v", file, errs)
		}
		for _, group := range groups.Groups {
			for _, rule := range group.Rules {
				if _, twice := byName[rule.Alert]; twice || rule.Alert == "" {
					t.Errorf("%s: duplicate alert %q", file, rule.Alert)
				}
				byName[rule.Alert] = rule
			}
		}
	}
	return byName
}

// measured are samples of two hours, one each minute.
type measured map[string]storage.Series

const step, end = time.Minute, 2 * time.Hour

// measure adds series, in the notation of promtool's tests, and replaces those with the same labels.
func (m measured) measure(t *testing.T, series []string) {
	t.Helper()
	for _, line := range series {
		metric, values, err := language.ParseSeriesDesc(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		one := promql.Series{Metric: metric}
		for i, value := range values {
			if at := time.Duration(i) * step; !value.Omitted && at <= end {
				one.Floats = append(one.Floats, promql.FPoint{T: at.Milliseconds(), F: value.Value})
			}
		}
		m[metric.String()] = promql.NewStorageSeries(one)
	}
}

// Querier implements storage.Queryable.
func (m measured) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		found := &seriesSet{}
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if !slices.ContainsFunc(matchers, func(of *labels.Matcher) bool { return !of.Matches(m[name].Labels().Get(of.Name)) }) {
				found.left = append(found.left, m[name])
			}
		}
		return found
	}}, nil
}

type seriesSet struct {
	left []storage.Series
	at   storage.Series
}

func (s *seriesSet) Next() bool {
	if len(s.left) == 0 {
		return false
	}
	s.at, s.left = s.left[0], s.left[1:]
	return true
}

func (s *seriesSet) At() storage.Series                { return s.at }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// raise returns the result of an expression at the end of the two hours.
func (m measured) raise(t *testing.T, expression string) promql.Vector {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute})
	query, err := engine.NewInstantQuery(context.Background(), m, nil, expression, time.Unix(0, 0).Add(end))
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	found, err := query.Exec(context.Background()).Vector()
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return slices.Clone(found)
}

var usedLabel = regexp.MustCompile(`\$labels\.(\w+)`)

func TestAlertsAreRaisedInTheirSituations(t *testing.T) {
	all := alerts(t)
	var file struct {
		Well   []string
		Raised []struct {
			Alerts, Series []string
		}
	}
	read(t, "testdata/situations.yaml", &file)
	shown := map[string]bool{}
	for _, situation := range append(file.Raised, struct{ Alerts, Series []string }{}) { // in the last situation, all is well
		m := measured{}
		m.measure(t, file.Well)
		m.measure(t, situation.Series)
		for name, rule := range all {
			found := m.raise(t, rule.Expr)
			if expected := slices.Contains(situation.Alerts, name); expected != (len(found) == 1) {
				t.Errorf("%s: raised %d times by %q", name, len(found), situation.Series)
				continue
			} else if !expected {
				continue
			}
			shown[name] = true
			for _, used := range usedLabel.FindAllStringSubmatch(rule.Annotations["summary"], -1) {
				if found[0].Metric.Get(used[1]) == "" {
					t.Errorf("%s: the result has no label %s", name, used[1])
				}
			}
		}
	}
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, rule := range all {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/operations.md does not say what to do about %s", name)
		}
		if !shown[name] {
			t.Errorf("no situation raises %s", name)
		}
		if severity := rule.Labels["severity"]; severity != "warning" && severity != "critical" || rule.Annotations["summary"] == "" {
			t.Errorf("%s has no severity or no summary", name)
		}
	}
}
