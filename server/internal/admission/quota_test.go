package admission

import (
	"context"
	"errors"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kcplane/kcp/server/internal/objecttest"
)

func (s *storedObjects) ResourceQuotas(string) corev1client.ResourceQuotaInterface {
	return storedQuotas{stored: s}
}

type storedQuotas struct {
	corev1client.ResourceQuotaInterface
	stored *storedObjects
}

func (s storedQuotas) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.ResourceQuota, error) {
	if found, ok := s.stored.quotas[name]; ok {
		return found.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("resourcequotas"), name)
}

func (s storedQuotas) UpdateStatus(ctx context.Context, q *corev1.ResourceQuota, _ metav1.UpdateOptions) (*corev1.ResourceQuota, error) {
	if len(s.stored.failures) > 0 {
		err := s.stored.failures[0]
		s.stored.failures = s.stored.failures[1:]
		return nil, err
	}
	found, err := s.Get(ctx, q.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if found.ResourceVersion != q.ResourceVersion {
		return nil, apierrors.NewConflict(corev1.Resource("resourcequotas"), q.Name, nil)
	}
	q = q.DeepCopy()
	q.ResourceVersion += "1"
	s.stored.quotas[q.Name] = q
	return q, nil
}

func TestNewObjectsAreChargedToTheQuotasOfNamespaceAndCluster(t *testing.T) {
	const widgets = "count/widgets.example.org"
	quotaFor := func(namespace string, scoped bool, of corev1.ResourceName, used, hard int64) *corev1.ResourceQuota {
		q := objecttest.In("team", &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q-" + namespace, Namespace: namespace}})
		if scoped {
			q.Annotations[ClusterScopedQuota] = "true"
		}
		q.Spec.Hard = corev1.ResourceList{of: *resource.NewQuantity(hard, resource.DecimalSI)}
		q.Status.Hard, q.Status.Used = q.Spec.Hard, corev1.ResourceList{of: *resource.NewQuantity(used, resource.DecimalSI)}
		return q
	}
	// changed is a quota as other requests have charged it.
	changed := func(q *corev1.ResourceQuota, used int64) *corev1.ResourceQuota {
		q = q.DeepCopy()
		q.ResourceVersion = "other"
		for name := range q.Status.Used {
			q.Status.Used[name] = *resource.NewQuantity(used, resource.DecimalSI)
		}
		return q
	}
	namespaced, clusterScoped := write{object: `metadata: {namespace: default}`}, write{object: `{}`}
	conflict := apierrors.NewConflict(corev1.Resource("resourcequotas"), "q", nil)
	conflicts := make([]error, quotaAttempts)
	for i := range conflicts {
		conflicts[i] = conflict
	}
	exceeded := func(q string, name string, used int) string {
		return "403 Forbidden: exceeded quota: " + q + ", requested: " + name + "=1, used: " + name + "=" + strconv.Itoa(used) + ", limited: " + name + "=" + strconv.Itoa(used)
	}
	for name, test := range map[string]struct {
		write
		kind     string
		quota    *corev1.ResourceQuota
		stored   *corev1.ResourceQuota // quota if nil
		failures []error
		dryRun   bool
		want     string
		used     int64 // by the stored quota afterwards
	}{
		"a quota with room is charged":                      {namespaced, "", quotaFor("default", false, widgets, 1, 2), nil, nil, false, "", 2},
		"a full quota refuses the object":                   {namespaced, "", quotaFor("default", false, widgets, 2, 2), nil, nil, false, exceeded("q-default", widgets, 2), 2},
		"a quota of another namespace is not charged":       {namespaced, "", quotaFor("other", false, widgets, 2, 2), nil, nil, false, "", 2},
		"a quota of another resource is not charged":        {namespaced, "", quotaFor("default", false, "count/gadgets.example.org", 2, 2), nil, nil, false, "", 2},
		"a quota of the cluster is charged":                 {namespaced, "", quotaFor("admin", true, widgets, 1, 2), nil, nil, false, "", 2},
		"a full quota of the cluster refuses the object":    {namespaced, "", quotaFor("admin", true, widgets, 2, 2), nil, nil, false, exceeded("q-admin", widgets, 2), 2},
		"it refuses cluster-scoped objects":                 {clusterScoped, "", quotaFor("admin", true, widgets, 2, 2), nil, nil, false, exceeded("q-admin", widgets, 2), 2},
		"a quota of a namespace does not refuse those":      {clusterScoped, "", quotaFor("default", false, widgets, 2, 2), nil, nil, false, "", 2},
		"without the annotation, only its namespace counts": {namespaced, "", quotaFor("admin", false, widgets, 2, 2), nil, nil, false, "", 2},
		"in another namespace, the annotation is ignored":   {namespaced, "", quotaFor("default", true, widgets, 1, 2), nil, nil, false, "", 2},
		"ConfigMaps have a second name in quotas":           {write{group: "core", object: `metadata: {namespace: default}`}, "ConfigMap", quotaFor("default", false, "configmaps", 2, 2), nil, nil, false, exceeded("q-default", "configmaps", 2), 2},
		"a dry run is checked":                              {namespaced, "", quotaFor("default", false, widgets, 2, 2), nil, nil, true, exceeded("q-default", widgets, 2), 2},
		"a dry run is not charged":                          {namespaced, "", quotaFor("default", false, widgets, 1, 2), nil, nil, true, "", 1},
		"a subresource is not charged":                      {write{object: `metadata: {namespace: default}`, subresource: "scale"}, "", quotaFor("default", false, widgets, 2, 2), nil, nil, false, "", 2},
		"after a conflict, the new usage is charged":        {namespaced, "", quotaFor("default", false, widgets, 0, 2), changed(quotaFor("default", false, widgets, 0, 2), 1), nil, false, "", 2},
		"after a conflict, a full quota refuses the object": {namespaced, "", quotaFor("default", false, widgets, 0, 2), changed(quotaFor("default", false, widgets, 0, 2), 2), nil, false, exceeded("q-default", widgets, 2), 2},
		"a request gives up after many conflicts": {namespaced, "", quotaFor("default", false, widgets, 0, 2), nil, conflicts, false,
			`409 Conflict: Operation cannot be fulfilled on resourcequotas "q-default": other requests keep changing the quota; try again`, 0},
		"another error of the storage is returned": {namespaced, "", quotaFor("default", false, widgets, 0, 2), nil, []error{errors.New("etcd is slow")}, false, "not a Status: charging quota q-default: etcd is slow", 0},
		"a quota that is deleted is not charged":   {namespaced, "", quotaFor("default", false, widgets, 0, 2), quotaFor("none", false, widgets, 0, 2), nil, false, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			config := newConfig(t, nil, test.quota)
			stored := test.stored
			if stored == nil {
				var err error
				if stored, err = config.Set.ResourceQuotas.Get("team", test.quota.Namespace, test.quota.Name); err != nil {
					t.Fatal(err)
				}
			}
			storage := &storedObjects{quotas: map[string]*corev1.ResourceQuota{stored.Name: stored.DeepCopy()}, failures: append([]error(nil), test.failures...)}
			config.Kube = storage
			if test.kind == "" {
				test.group, test.kind = "example.org", "Widget"
			}
			a := test.attributes(t, test.kind)
			if test.dryRun || test.group == "core" {
				kind, gvr := a.GetKind(), a.GetResource()
				if test.group == "core" {
					kind.Group, gvr.Group = "", ""
				}
				a = admission.NewAttributesRecord(a.GetObject(), nil, kind, a.GetNamespace(), a.GetName(), gvr, "", admission.Create, nil, test.dryRun, tenant)
			}
			wantOutcome(t, a, newQuota(config).Validate(in(t, "team"), a, nil), test.want)
			for _, used := range storage.quotas[stored.Name].Status.Used {
				if used.Value() != test.used {
					t.Errorf("%d are used, want %d", used.Value(), test.used)
				}
			}
		})
	}
}
