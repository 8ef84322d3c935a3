package conversion

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
)

// A fuzzer varies the seed of random objects; an ordinary test uses this many seeds.
const seeds = 500

// same compares objects like the API: an empty list equals no list, and the resources of an export have no order.
var same = cmp.Options{
	cmpopts.EquateEmpty(),
	cmpopts.SortSlices(func(a, b apisv1alpha2.ResourceSchema) bool {
		return a.Name+"."+a.Group < b.Name+"."+b.Group
	}),
}

func FuzzExportV1alpha2(f *testing.F) { lossless(f, ExportToV1alpha1, ExportToV1alpha2) }
func FuzzExportV1alpha1(f *testing.F) { lossless(f, ExportToV1alpha2, ExportToV1alpha1) }

func FuzzBindingV1alpha2(f *testing.F) { lossless(f, BindingToV1alpha1, BindingToV1alpha2) }
func FuzzBindingV1alpha1(f *testing.F) { lossless(f, BindingToV1alpha2, BindingToV1alpha1) }

// lossless checks that an object that is converted to the other version and back is unchanged, that neither conversion
// writes into its input, and that what the other version shows survives a second round.
func lossless[A, B any](f *testing.F, there func(*A) *B, back func(*B) *A) {
	for seed := range int64(seeds) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed int64) {
		in, untouched := new(A), new(A)
		filler(seed).Fill(in)
		filler(seed).Fill(untouched)
		other := there(in)
		if diff := cmp.Diff(untouched, in); diff != "" {
			t.Errorf("the conversion changed its input:\n%s", diff)
		}
		again := back(other)
		if diff := cmp.Diff(in, again, same); diff != "" {
			t.Errorf("the object came back changed:\n%s", diff)
		}
		if diff := cmp.Diff(other, there(again), same); diff != "" {
			t.Errorf("the second round differs from the first:\n%s", diff)
		}
	})
}

// filler fills objects with values that the schemas allow.
func filler(seed int64) *randfill.Filler {
	return randfill.NewWithSeed(seed).NilChance(0.3).NumElements(0, 4).Funcs(
		func(t *metav1.TypeMeta, _ randfill.Continue) { *t = metav1.TypeMeta{} }, // set when the object is encoded
		func(m *metav1.ObjectMeta, c randfill.Continue) {
			m.Name, m.Generation = "x", c.Int63()
			c.Fill(&m.Annotations)
			c.Fill(&m.Labels)
		},
		func(t *metav1.Time, c randfill.Continue) { *t = metav1.Unix(c.Int63n(1<<31), 0) },
		func(s *apisv1alpha2.PermissionClaimSelector, c randfill.Continue) {
			if s.MatchAll = c.Bool(); !s.MatchAll {
				s.MatchLabels = map[string]string{"app": c.String(5)}
			}
		},
		func(c *apisv1alpha2.PermissionClaim, r randfill.Continue) {
			r.FillNoCustom(c)
			if r.Bool() || len(c.Verbs) == 0 {
				c.Verbs = []string{"*"}
			}
		},
		func(c *apisv1alpha1.PermissionClaim, r randfill.Continue) {
			r.FillNoCustom(c)
			c.All = r.Bool()
			if c.All {
				c.ResourceSelector = nil
			} else if len(c.ResourceSelector) == 0 {
				c.ResourceSelector = []apisv1alpha1.ResourceSelector{{Name: "a"}}
			}
		},
		func(s *apisv1alpha1.APIExportSpec, r randfill.Continue) {
			r.FillNoCustom(s)
			for i := range s.LatestResourceSchemas {
				s.LatestResourceSchemas[i] = schemaName(fmt.Sprint("r", i), r)
			}
			s.PermissionClaims = distinct(s.PermissionClaims, keyOfV1alpha1)
		},
		func(s *apisv1alpha2.APIExportSpec, r randfill.Continue) {
			r.FillNoCustom(s)
			for i := range s.Resources {
				s.Resources[i] = resourceOf(schemaName(fmt.Sprint("r", i), r))
				switch r.Intn(4) {
				case 0:
					s.Resources[i].Storage = apisv1alpha2.ResourceSchemaStorage{Virtual: &apisv1alpha2.ResourceSchemaStorageVirtual{}}
					r.Fill(s.Resources[i].Storage.Virtual)
				case 1:
					s.Resources[i].Name, s.Resources[i].Group = fmt.Sprint("other", i), "core"
				}
			}
			s.PermissionClaims = distinct(s.PermissionClaims, func(c apisv1alpha2.PermissionClaim) claimKey { return keyOfV1alpha2(everywhere(c)) })
		},
	)
}

func schemaName(resource string, r randfill.Continue) string {
	groups := []string{"core", "apps", "example.io", "a.b.c.example.io"}
	return "v1." + resource + "." + groups[r.Intn(len(groups))]
}

// distinct returns the items of a list without those whose key an earlier one has.
func distinct[T any](list []T, key func(T) claimKey) []T {
	seen := map[claimKey]bool{}
	return slices.DeleteFunc(list, func(item T) bool {
		k := key(item)
		defer func() { seen[k] = true }()
		return seen[k]
	})
}

func TestRandomObjectsUseEveryAnnotation(t *testing.T) {
	missing := map[string]bool{
		apisv1alpha2.ResourceSchemasAnnotation: true, apisv1alpha2.PermissionClaimsAnnotation: true,
		apisv1alpha2.AcceptablePermissionClaimsAnnotation: true, apisv1alpha2.StatusExportPermissionClaimsAnnotation: true,
		apisv1alpha2.StatusAppliedPermissionClaimsAnnotation: true, apisv1alpha2.V1alpha1PermissionClaimsAnnotation: true,
		apisv1alpha2.V1alpha1StatusExportPermissionClaimsAnnotation: true, apisv1alpha2.V1alpha1StatusAppliedPermissionClaimsAnnotation: true,
	}
	for seed := range int64(seeds) {
		e1, e2, b1, b2 := apisv1alpha1.APIExport{}, apisv1alpha2.APIExport{}, apisv1alpha1.APIBinding{}, apisv1alpha2.APIBinding{}
		for _, obj := range []any{&e1, &e2, &b1, &b2} {
			filler(seed).Fill(obj)
		}
		for _, annotations := range []map[string]string{
			ExportToV1alpha2(&e1).Annotations, ExportToV1alpha1(&e2).Annotations, BindingToV1alpha2(&b1).Annotations, BindingToV1alpha1(&b2).Annotations,
		} {
			for key := range annotations {
				delete(missing, key)
			}
		}
	}
	if len(missing) > 0 {
		t.Errorf("no random object needed %s", strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
	}
}
