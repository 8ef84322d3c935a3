package options

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
)

func TestABatteryListReplacesOrChangesTheDefaults(t *testing.T) {
	for _, test := range []struct {
		list []string
		want []string
	}{
		{nil, nil},
		{defaultBatteries, []string{"admin", "workspace-types"}},
		{[]string{"user"}, []string{"user"}},
		{[]string{"user", "metrics-viewer"}, []string{"user", "metrics-viewer"}},
		{[]string{"+user"}, []string{"admin", "user", "workspace-types"}},
		{[]string{"-admin"}, []string{"workspace-types"}},
		{[]string{"-admin", "+metrics-viewer"}, []string{"metrics-viewer", "workspace-types"}},
		{[]string{"+user", "-user"}, []string{"admin", "workspace-types"}},
	} {
		got, err := parseBatteries(test.list)
		if err != nil || !got.Equal(sets.New(test.want...)) {
			t.Errorf("%q: got %v, %v, want %v", test.list, sets.List(got), err, test.want)
		}
	}
}

func TestAnUnknownBatteryIsRefusedWithTheListOfBatteries(t *testing.T) {
	for _, list := range [][]string{{"lamp"}, {"+lamp"}, {"-lamp"}, {"admin", "lamp"}, {"Admin"}, {""}, {"+"}, {"+-user"}, {" admin"}} {
		_, err := parseBatteries(list)
		if err == nil || !strings.Contains(err.Error(), "must be one of admin, metrics-viewer, user") {
			t.Errorf("%q: got %v", list, err)
		}
	}
	if _, err := parseBatteries([]string{"user", "-admin"}); err == nil || !strings.Contains(err.Error(), "either") {
		t.Errorf("a list of names and changes: got %v", err)
	}
}

func TestTheLeaderElectionNeedsANamespaceAndAName(t *testing.T) {
	o := newLeaderElection()
	o.Enabled = true
	if err := o.validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	o.Name = ""
	if err := o.validate(); err == nil {
		t.Error("an empty name is accepted")
	}
	o.Enabled = false
	if err := o.validate(); err != nil {
		t.Errorf("without leader election, the name matters: %v", err)
	}
}
