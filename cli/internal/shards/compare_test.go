package shards

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// The installation of the tests: org is a child of root, and its record is on the root shard.
var org = Owner{Cluster: "root", Name: "org", UID: "of org"}

func recorded(shard string, epoch uint64) Record {
	return Record{Owner: org, On: "root", Shard: shard, Cluster: "c1", Epoch: epoch}
}

func at(shard string, epoch uint64) Held {
	owner := org
	return Held{Shard: shard, Cluster: "c1", UID: types.UID("on " + shard), Epoch: epoch, Owner: &owner}
}

func TestWhatIsFound(t *testing.T) {
	deleting := recorded("west", 1)
	deleting.Deleting = true
	another := at("west", 1)
	another.Owner = &Owner{Cluster: "root", Name: "org", UID: "of another"}
	gone := another
	gone.Deleting = true
	unowned := Held{Shard: "west", Cluster: "c2", Epoch: 1}
	below := Held{Shard: "west", Cluster: "c3", Epoch: 1, Owner: &Owner{Cluster: "c9", Name: "team", UID: "of team"}}
	parent := Record{Owner: Owner{Cluster: "root", Name: "parent", UID: "of parent"}, Cluster: "c9", Shard: "east", Epoch: 2}
	parentHere := parent
	parentHere.Shard, parentHere.Epoch = "west", 1
	copied := Held{Shard: "west", Cluster: "c9", Epoch: 1, Owner: &parent.Owner}
	for name, tc := range map[string]struct {
		records []Record
		held    []Held
		silent  string
		want    []Kind
	}{
		"a cluster where it is recorded":                     {[]Record{recorded("west", 1)}, []Held{at("west", 1)}, "", nil},
		"a lost cluster":                                     {[]Record{recorded("west", 1)}, nil, "", []Kind{Lost}},
		"a cluster on a shard that does not exist":           {[]Record{recorded("gone", 1)}, nil, "", []Kind{Lost}},
		"a cluster on a silent shard":                        {[]Record{recorded("west", 1)}, nil, "west", []Kind{Silent}},
		"a Workspace that is being deleted":                  {[]Record{deleting}, nil, "", nil},
		"an older copy":                                      {[]Record{recorded("east", 2)}, []Held{at("east", 2), at("west", 1)}, "", []Kind{Doubled}},
		"a copy with the same epoch":                         {[]Record{recorded("east", 2)}, []Held{at("east", 2), at("west", 2)}, "", []Kind{Conflict}},
		"a record that is behind":                            {[]Record{recorded("west", 1)}, []Held{at("west", 1), at("east", 2)}, "", []Kind{Behind}},
		"a record that is behind, without the old copy":      {[]Record{recorded("west", 1)}, []Held{at("east", 2)}, "", []Kind{Behind}},
		"a shard that is behind":                             {[]Record{recorded("west", 3)}, []Held{at("west", 1)}, "", []Kind{Conflict}},
		"an older copy only":                                 {[]Record{recorded("east", 2)}, []Held{at("west", 1)}, "", []Kind{Doubled, Lost}},
		"an orphan":                                          {nil, []Held{at("west", 1)}, "", []Kind{Orphaned}},
		"the cluster of an older Workspace":                  {[]Record{recorded("east", 1)}, []Held{at("east", 1), another}, "", []Kind{Orphaned}},
		"an orphan that is being deleted":                    {nil, []Held{gone}, "", nil},
		"an orphan whose Workspace may be on a silent shard": {nil, []Held{below}, "east", []Kind{Silent}},
		"an older copy of a cluster whose Workspace is on a silent shard": {[]Record{parent}, []Held{below, copied}, "east",
			[]Kind{Silent, Doubled}},
		"an orphan, while another shard is silent":    {[]Record{parentHere}, []Held{below, copied}, "east", []Kind{Silent, Orphaned}},
		"a cluster without an owner on another shard": {nil, []Held{unowned}, "", []Kind{Orphaned}},
		"root": {nil, []Held{{Shard: "root", Cluster: "root", Epoch: 1}}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := State{Records: tc.records, Held: tc.held, Unread: map[string]error{}, Known: map[string]bool{"root": true, "west": true, "east": true}}
			if tc.silent != "" {
				s.Unread[tc.silent] = errors.New("it is down")
			}
			var got []Kind
			for _, f := range Compare(s) {
				got = append(got, f.Kind)
			}
			if !same(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestAShardThatRefusesTheUserIsNotSilent(t *testing.T) {
	resource := schema.GroupResource{Group: "core.kcp.io", Resource: "logicalclusters"}
	for name, tc := range map[string]struct {
		reason  error
		want    Kind
		message string
	}{
		"a missing permission":     {apierrors.NewForbidden(resource, "", errors.New("the user may not list")), Forbidden, "refuses the user: logicalclusters"},
		"credentials of elsewhere": {apierrors.NewUnauthorized("Unauthorized"), Forbidden, "use a kubeconfig of an administrator of all shards"},
		"a wrapped error":          {fmt.Errorf("page 2: %w", apierrors.NewForbidden(resource, "", nil)), Forbidden, "page 2"},
		"no answer":                {errors.New("connection refused"), Silent, "the shard: connection refused"},
		"an overloaded shard":      {apierrors.NewTooManyRequests("later", 1), Silent, "later"},
	} {
		found := Compare(State{Records: []Record{recorded("west", 1)}, Known: map[string]bool{"west": true}, Unread: map[string]error{"west": tc.reason}})
		if len(found) != 1 || found[0].Kind != tc.want || found[0].Shard != "west" || !strings.Contains(found[0].Message, tc.message) {
			t.Errorf("%s: got %+v", name, found)
		}
	}
}

// same reports whether two lists have the same elements.
func same(a, b []Kind) bool {
	count := map[Kind]int{}
	for _, k := range a {
		count[k]++
	}
	for _, k := range b {
		count[k]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

func TestOnlyARecordThatIsBehindIsRepaired(t *testing.T) {
	for kind, want := range map[Kind]bool{Behind: true, Lost: false, Doubled: false, Orphaned: false, Conflict: false, Silent: false, Forbidden: false} {
		if got := (Finding{Kind: kind}).Repairable(); got != want {
			t.Errorf("%s: got %t", kind, got)
		}
	}
}

func TestOrphansOfRootAreOrganizationsAndHomes(t *testing.T) {
	for parent, want := range map[string]bool{"root": true, "homes": true, "c1": false} {
		f := Finding{Kind: Orphaned, held: Held{Owner: &Owner{Cluster: parent, Name: "x"}}}
		if got := f.IsOfRoot(); got != want {
			t.Errorf("%s: got %t", parent, got)
		}
	}
}
