package endpointslice

import (
	"context"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const path = "/services/apiexport/provider/widgets"

func shard(name, region string) *corev1alpha1.Shard {
	return objecttest.In("root", &corev1alpha1.Shard{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"region": region}},
		Spec:       corev1alpha1.ShardSpec{BaseURL: "https://" + name, VirtualWorkspaceURL: "https://views." + name},
	})
}

func export() *apisv1alpha2.APIExport {
	return objecttest.In("provider", &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}})
}

func slice(selector string, endpoints ...string) *exportSlice {
	s := objecttest.In("provider", &apisv1alpha1.APIExportEndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets"},
		Spec:       apisv1alpha1.APIExportEndpointSliceSpec{Export: apisv1alpha2.ExportBindingReference{Name: "widgets"}},
		Status:     apisv1alpha1.APIExportEndpointSliceStatus{ShardSelector: selector},
	})
	for _, url := range endpoints {
		s.Status.Endpoints = append(s.Status.Endpoints, apisv1alpha1.APIExportEndpoint{URL: url})
	}
	return s
}

func consumer() *apisv1alpha2.APIBinding {
	return objecttest.In("consumer", &apisv1alpha2.APIBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets"},
		Spec: apisv1alpha2.APIBindingSpec{
			Reference: apisv1alpha2.BindingReference{Export: &apisv1alpha2.ExportBindingReference{Path: "provider", Name: "widgets"}},
		},
		Status: apisv1alpha2.APIBindingStatus{APIExportClusterName: "provider"},
	})
}

// others records reports.
type others struct {
	holder  string
	reports []Consumption
	to      []string
}

func (o *others) Holder(logicalcluster.Name) string { return o.holder }

func (o *others) Report(_ context.Context, shard string, c Consumption) error {
	o.reports, o.to = append(o.reports, c), append(o.to, shard)
	return nil
}

// installed returns a reconciler of a shard, over objects that the test adds to.
func installed(t *testing.T, name string, o *objecttest.Objects, others *others) *reconciler[*exportSlice] {
	t.Helper()
	all, err := exports.New(o.Set, pathindex.New(o.Set), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	in := Inputs{
		Set: o.Set, Exports: all, Slices: o.Stored(o.Set.APIExportEndpointSlices.Informer), ShardName: name, Others: others,
	}
	return &reconciler[*exportSlice]{in, kindOfExports(in)}
}

func urls(t *testing.T, o *objecttest.Objects) (all []string) {
	t.Helper()
	s, err := o.Set.APIExportEndpointSlices.GetLocal("provider", "", "widgets")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range s.Status.Endpoints {
		all = append(all, e.URL)
	}
	return all
}

var key = informers.Key{Cluster: "provider", Name: "widgets"}

func TestASliceKeepsTheURLsOfOtherShardsThatExist(t *testing.T) {
	own, east, west := "https://views.here"+path, "https://views.east"+path, "https://views.west"+path
	for name, tc := range map[string]struct {
		listed    []string
		selector  *metav1.LabelSelector
		consumers bool
		want      []string
	}{
		"no consumers":                         {nil, nil, false, nil},
		"own consumers":                        {nil, nil, true, []string{own}},
		"consumers elsewhere":                  {[]string{east, west}, nil, false, []string{east, west}},
		"consumers everywhere":                 {[]string{west}, nil, true, []string{own, west}},
		"own consumers are gone":               {[]string{own, west}, nil, false, []string{west}},
		"a shard that was removed":             {[]string{"https://views.gone" + path, west}, nil, false, []string{west}},
		"a former URL of a shard":              {[]string{"https://old.west" + path}, nil, false, nil},
		"the URL of another export":            {[]string{"https://views.west/services/apiexport/provider/other"}, nil, false, nil},
		"a partition without the other shards": {[]string{east, west}, &metav1.LabelSelector{MatchLabels: map[string]string{"region": "us"}}, true, []string{west}},
	} {
		t.Run(name, func(t *testing.T) {
			s := slice("", tc.listed...)
			o := objecttest.New(t, shard("here", "eu"), shard("east", "eu"), shard("west", "us"), export())
			if tc.selector != nil {
				s.Spec.Partition = "some"
				o.Show(partition("provider", "some", tc.selector))
			}
			o.Store(s)
			o.Show(s)
			if tc.consumers {
				o.Show(consumer())
			}
			r := installed(t, "here", o, &others{})
			if err := r.reconcile(logicalcluster.WithName(t.Context(), "provider"), key); err != nil {
				t.Fatal(err)
			}
			if got := urls(t, o); !slices.Equal(got, tc.want) {
				t.Errorf("the slice lists %v, want %v", got, tc.want)
			}
		})
	}
}

func TestAShardReportsItsConsumersUntilTheSliceListsThem(t *testing.T) {
	own := "https://views.here" + path
	for name, tc := range map[string]struct {
		slice     *exportSlice
		consumers bool
		holder    string
		want      []bool
	}{
		"consumers that are not listed":     {slice("", "https://views.west"+path), true, "west", []bool{true}},
		"consumers that are listed":         {slice("", own), true, "west", nil},
		"no consumers":                      {slice(""), false, "west", nil},
		"consumers that are gone":           {slice("", own), false, "west", []bool{false}},
		"a selector without this shard":     {slice("region=us"), true, "west", nil},
		"a selector that no longer selects": {slice("region=us", own), true, "west", []bool{false}},
		"a holder that is not known":        {slice(""), true, "", nil},
		"a slice that this shard held":      {slice(""), true, "here", nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := objecttest.New(t, shard("here", "eu"), shard("west", "us"))
			o.Share(func(logicalcluster.Name) (string, []logicalcluster.Name) { return "west", nil })
			o.Offer("west", export())
			o.Offer("west", tc.slice)
			if tc.consumers {
				o.Show(consumer())
			}
			others := &others{holder: tc.holder}
			r := installed(t, "here", o, others)
			if err := r.reconcile(logicalcluster.WithName(t.Context(), "provider"), key); err != nil {
				t.Fatal(err)
			}
			var got []bool
			for i, c := range others.reports {
				if c.Kind != r.name || c.Cluster != "provider" || c.Name != "widgets" || others.to[i] != "west" {
					t.Errorf("reported %+v to %s", c, others.to[i])
				}
				got = append(got, c.Consumes)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("reported %v, want %v", got, tc.want)
			}
		})
	}
}

func TestAReportChangesOnlyTheURLOfTheShardThatSendsIt(t *testing.T) {
	own, west := "https://views.here"+path, "https://views.west"+path
	for name, tc := range map[string]struct {
		slice    *exportSlice
		caller   string
		consumes bool
		want     []string
		refused  func(error) bool
	}{
		"consumers":                   {slice("", own), "west", true, []string{own, west}, nil},
		"consumers, again":            {slice("", own, west), "west", true, []string{own, west}, nil},
		"no consumers":                {slice("", own, west), "west", false, []string{own}, nil},
		"no consumers, again":         {slice("", own), "west", false, []string{own}, nil},
		"a shard that is not chosen":  {slice("region=eu", own), "west", true, []string{own}, nil},
		"a shard that does not exist": {slice("", own), "gone", true, []string{own}, apierrors.IsServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			o := objecttest.New(t, shard("here", "eu"), shard("west", "us"), export(), tc.slice)
			in := installed(t, "here", o, &others{}).Inputs
			serve := Reports(in, in)
			_, err := serve(t.Context(), peers.Identity{Kind: peers.Shard, Name: tc.caller}, Consumption{
				Kind: "apiexportendpointslice", Cluster: "provider", Name: "widgets", Consumes: tc.consumes,
			})
			if (err == nil) != (tc.refused == nil) || (err != nil && !tc.refused(err)) {
				t.Errorf("the report returned %v", err)
			}
			if got := urls(t, o); !slices.Equal(got, tc.want) {
				t.Errorf("the slice lists %v, want %v", got, tc.want)
			}
		})
	}
	t.Run("the next slice of the name", func(t *testing.T) {
		o := objecttest.New(t, shard("here", "eu"), shard("west", "us"), export(), slice("", own))
		next := slice("")
		next.UID = "2"
		o.Store(next)
		in := installed(t, "here", o, &others{}).Inputs
		_, err := Reports(in, in)(t.Context(), peers.Identity{Kind: peers.Shard, Name: "west"}, Consumption{
			Kind: "apiexportendpointslice", Cluster: "provider", Name: "widgets", Consumes: true,
		})
		if !apierrors.IsNotFound(err) {
			t.Errorf("the report returned %v", err)
		}
	})
	o := objecttest.New(t, shard("west", "us"))
	in := installed(t, "here", o, &others{}).Inputs
	serve := Reports(in, in)
	for kind, refused := range map[string]func(error) bool{"apiexportendpointslice": apierrors.IsNotFound, "secrets": apierrors.IsBadRequest} {
		_, err := serve(t.Context(), peers.Identity{Kind: peers.Shard, Name: "west"}, Consumption{Kind: kind, Cluster: "provider", Name: "widgets"})
		if !refused(err) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
