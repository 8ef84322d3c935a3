package admission

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "github.com/kcplane/kcp/api/cache/v1alpha1"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// publisher returns a ClusterCachedResource for regions.example.org.
func publisher(cluster, name string) *cachev1alpha1.ClusterCachedResource {
	return objecttest.In(cluster, &cachev1alpha1.ClusterCachedResource{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: cachev1alpha1.ClusterCachedResourceSpec{Group: "example.org", Version: "v1", Resource: "regions"},
	})
}

func TestPublishingRequiresPermissionToReadAllObjects(t *testing.T) {
	const (
		regions     = `spec: {group: example.org, version: v1, resource: regions}`
		withSecret  = `spec: {group: example.org, version: v1, resource: regions, identity: {secretRef: {namespace: keys, name: mine}}}`
		badSelector = `spec: {group: example.org, version: v1, resource: regions, labelSelector: {matchExpressions: [{key: a, operator: Like}]}}`
	)
	missing := func(verb string) string {
		return "403 Forbidden: missing verb='" + verb + "' permission on regions.example.org: publishing a resource requires permission to read all of its objects"
	}
	read := grants{"ada get regions.example.org * in provider", "ada list regions.example.org * in provider", "ada watch regions.example.org * in provider"}
	for name, test := range map[string]struct {
		write
		granted  grants
		existing []objecttest.Object
		want     string
	}{
		"a user who may read all objects publishes them":    {write{object: regions}, read, nil, ""},
		"without the verb get, it is refused":               {write{object: regions}, read[1:], nil, missing("get")},
		"without the verb list, it is refused":              {write{object: regions}, grants{read[0], read[2]}, nil, missing("list")},
		"without the verb watch, it is refused":             {write{object: regions}, read[:2], nil, missing("watch")},
		"permission in another workspace does not count":    {write{object: regions}, grants{"ada get regions.example.org * in root"}, nil, missing("get")},
		"a privileged user needs no permission":             {write{object: regions, who: privileged}, nil, nil, ""},
		"a change of the resource needs permission":         {write{object: regions, before: `spec: {group: example.org, version: v1, resource: zones}`}, nil, nil, missing("get")},
		"a change of labels needs no permission":            {write{object: "metadata: {labels: {a: b}}\n" + regions, before: regions}, nil, nil, ""},
		"a deleted one needs no permission":                 {write{object: "metadata: {deletionTimestamp: '2020-01-01T00:00:00Z'}\n" + regions, before: withSecret}, nil, nil, ""},
		"the status needs no permission":                    {write{object: regions, subresource: "status"}, nil, nil, ""},
		"a Secret requires permission to get it":            {write{object: withSecret}, read, nil, "403 Forbidden: spec.identity.secretRef: missing verb='get' permission on secret keys/mine"},
		"a Secret that the user may get is admitted":        {write{object: withSecret}, append(grants{"ada get keys/secrets mine in provider"}, read...), nil, ""},
		"an invalid selector is refused":                    {write{object: badSelector}, read, nil, `422 Invalid: spec.labelSelector: Invalid value: {"matchExpressions":[{"key":"a","operator":"Like"}]}: "Like" is not a valid label selector operator`},
		"a namespaced resource is refused":                  {write{object: `spec: {group: example.org, version: v1, resource: widgets}`, who: privileged}, nil, nil, "403 Forbidden: widgets.example.org is namespaced: only cluster-scoped resources can be published"},
		"a resource that is not served yet is admitted":     {write{object: `spec: {group: example.org, version: v1, resource: later}`, who: privileged}, nil, nil, ""},
		"a second one for a resource is refused":            {write{object: regions}, read, []objecttest.Object{publisher("provider", "first")}, "403 Forbidden: ClusterCachedResource first already publishes regions.example.org"},
		"one in another workspace does not count":           {write{object: regions}, read, []objecttest.Object{publisher("team", "first")}, ""},
		"an update of the object itself is admitted":        {write{object: "metadata: {name: first}\n" + regions, before: `spec: {group: example.org, version: v2, resource: regions}`}, read, []objecttest.Object{publisher("provider", "first")}, ""},
		"one for another version of a resource is admitted": {write{object: `spec: {group: example.org, version: v2, resource: regions}`}, read, []objecttest.Object{publisher("provider", "first")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			test.group, test.version = "cache.kcp.io", "v1alpha1"
			a := test.attributes(t, "ClusterCachedResource")
			config := newConfig(t, test.granted, append(at("root", "root:provider", "root:team"), test.existing...)...)
			wantOutcome(t, a, cachedResourceRules{rules{config}}.Validate(in(t, "provider"), a, nil), test.want)
		})
	}
}

func TestSlicesOfPublishedObjectsRequirePermission(t *testing.T) {
	const slice = `spec: {clusterCachedResource: {path: "root:provider", name: regions}, export: {name: widgets}}`
	const own = `spec: {clusterCachedResource: {name: regions}, export: {name: widgets}}`
	const refused = "403 Forbidden: unable to create ClusterCachedResourceEndpointSlice: no permission to bind to ClusterCachedResource root:provider:regions"
	bind := func(cluster logicalcluster.Name, name string) grants {
		return grants{"ada bind clustercachedresources.cache.kcp.io " + name + " in " + string(cluster) + " deeply"}
	}
	for name, test := range map[string]struct {
		write
		granted grants
		want    string
	}{
		"a user who may bind it is admitted":             {write{object: slice}, bind("provider", "regions"), ""},
		"a user who may not bind it is refused":          {write{object: slice}, bind("provider", "other"), refused},
		"permission in the own workspace does not count": {write{object: slice}, bind("team", "regions"), refused},
		"one that does not exist has the same message": {write{object: `spec: {clusterCachedResource: {path: "root:provider", name: none}}`}, bind("provider", "none"),
			"403 Forbidden: unable to create ClusterCachedResourceEndpointSlice: no permission to bind to ClusterCachedResource root:provider:none"},
		"an unknown path has the same message": {write{object: `spec: {clusterCachedResource: {path: "root:none", name: regions}}`}, bind("provider", "regions"),
			"403 Forbidden: unable to create ClusterCachedResourceEndpointSlice: no permission to bind to ClusterCachedResource root:none:regions"},
		"one of the own workspace requires permission": {write{object: own}, nil,
			"403 Forbidden: unable to create ClusterCachedResourceEndpointSlice: no permission to bind to ClusterCachedResource root:team:regions"},
		"one of the own workspace is admitted":  {write{object: own}, bind("team", "regions"), ""},
		"a privileged user needs no permission": {write{object: slice, who: privileged}, nil, ""},
		"an update needs no permission":         {write{object: slice, before: slice}, nil, ""},
		"the status needs no permission":        {write{object: slice, subresource: "status"}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			test.group, test.version = "cache.kcp.io", "v1alpha1"
			a := test.attributes(t, "ClusterCachedResourceEndpointSlice")
			config := newConfig(t, test.granted, append(at("root", "root:provider", "root:team"), publisher("provider", "regions"), publisher("team", "regions"))...)
			wantOutcome(t, a, cachedResourceRules{rules{config}}.Validate(in(t, "team"), a, nil), test.want)
		})
	}
}
