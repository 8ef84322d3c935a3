package raw

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// orderManagers sorts the managedFields of all objects in a value by everything but their times. Servers sort them by seconds before
// managers, and a second may pass between two requests to one server but not to the other. If a list is not in the order of a server,
// a text replaces it, which the other server does not send.
func orderManagers(value any) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			orderManagers(item)
		}
	case map[string]any:
		for _, item := range value {
			orderManagers(item)
		}
		metadata, _ := value["metadata"].(map[string]any)
		managers, ok := metadata["managedFields"].([]any)
		if !ok {
			return
		}
		if err := checkOrder(managers); err != nil {
			metadata["managedFields"] = err.Error()
			return
		}
		slices.SortStableFunc(managers, func(a, b any) int {
			return compareManagers(managerOf(a), managerOf(b), false)
		})
	}
}

// checkOrder returns an error if the managers are not in the order in which a server returns them.
func checkOrder(managers []any) error {
	if !slices.IsSortedFunc(managers, func(a, b any) int { return compareManagers(managerOf(a), managerOf(b), true) }) {
		return fmt.Errorf("not sorted by operation, time and manager: %v", managers)
	}
	return nil
}

// managerOf returns a decoded entry. One that cannot be decoded is empty, and shows in the comparison of its values.
func managerOf(value any) metav1.ManagedFieldsEntry {
	var entry metav1.ManagedFieldsEntry
	if encoded, err := json.Marshal(value); err == nil {
		_ = json.Unmarshal(encoded, &entry)
	}
	return entry
}

func compareManagers(a, b metav1.ManagedFieldsEntry, times bool) int {
	first := cmp.Compare(a.Operation, b.Operation)
	if times && a.Time != nil && b.Time != nil {
		first = cmp.Or(first, cmp.Compare(a.Time.Unix(), b.Time.Unix()))
	}
	return cmp.Or(first, cmp.Compare(a.Manager, b.Manager), cmp.Compare(a.APIVersion, b.APIVersion), cmp.Compare(a.Subresource, b.Subresource))
}

func TestOrderOfManagersIsComparedWithoutTheClock(t *testing.T) {
	lines := func(entries string) string {
		a := &answer{peer: &peer{}, code: 200, parts: [][]byte{[]byte(`{"items": [{"metadata": {"managedFields": [` + entries + `]}}]}`)}}
		return strings.Join(a.lines(""), "\n")
	}
	entry := func(manager string, second int) string {
		return fmt.Sprintf(`{"manager": %q, "operation": "Apply", "time": "2026-01-01T00:00:%02dZ"}`, manager, second)
	}
	same := lines(entry("one", 1) + "," + entry("two", 1))
	if later := lines(entry("two", 1) + "," + entry("one", 2)); later != same {
		t.Errorf("a second that passes between two requests changes the lines:\n%s\nwant\n%s", later, same)
	}
	for name, wrong := range map[string]string{
		"managers of one second": lines(entry("two", 1) + "," + entry("one", 1)),
		"times":                  lines(entry("one", 2) + "," + entry("two", 1)),
		"a missing manager":      lines(entry("two", 1)),
	} {
		if wrong == same {
			t.Errorf("%s: the lines are the same as in the right order:\n%s", name, wrong)
		}
	}
}

func TestAgesAreNotCompared(t *testing.T) {
	for _, age := range []string{"0s", "119s", "2m", "2m5s", "3h12m", "2d3h"} {
		if got := (&peer{}).normal(age); got != "<age>" {
			t.Errorf("the age %q is compared as %q", age, got)
		}
	}
}
