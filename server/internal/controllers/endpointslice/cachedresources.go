package endpointslice

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	cachev1alpha1 "github.com/kcplane/kcp/api/cache/v1alpha1"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/tenancy/cachedresources"
	"github.com/kcplane/kcp/server/internal/views/replication"
	"github.com/kcplane/kcp/server/logicalcluster"
)

type cachedSlice = cachev1alpha1.ClusterCachedResourceEndpointSlice

// Problems with the objects that slices of ClusterCachedResources refer to.
var (
	errNoResource       = errors.New("there is no such ClusterCachedResource")
	errResourceNotReady = errors.New("the ClusterCachedResource is not ready: see its conditions")
	errNoExport         = errors.New("there is no such APIExport in this workspace")
	errNotShown         = errors.New("no resource of the APIExport has this slice as its virtual storage")
)

// NewForCachedResources returns the controller of ClusterCachedResourceEndpointSlices.
func NewForCachedResources(in Inputs) *runner.Controller {
	c := kindOfCachedResources(in).controller(in)
	c.WatchMappedForAll(in.Set.ClusterCachedResources.Informer, func(obj runtime.Object) []informers.Key {
		return runner.KeysOf(in.Cached.Naming(obj.(*cachev1alpha1.ClusterCachedResource).Name))
	})
	return c
}

func kindOfCachedResources(in Inputs) kind[*cachedSlice] {
	return kind[*cachedSlice]{
		name:   "clustercachedresourceendpointslice",
		lister: in.Set.ClusterCachedResourceEndpointSlices,
		naming: in.Cached.NamingExport,
		spec: func(s *cachedSlice) apisv1alpha1.APIExportEndpointSliceSpec {
			return apisv1alpha1.APIExportEndpointSliceSpec{Export: s.Spec.Export, Partition: s.Spec.Partition}
		},
		status: func(s *cachedSlice) *status { return (*status)(&s.Status) },
		empty:  func() *cachedSlice { return &cachedSlice{} },
		check: func(s *cachedSlice, conditions *[]corev1alpha1.Condition) (*apisv1alpha2.APIExport, error) {
			if err := checkResource(in.Cached, s, conditions); err != nil {
				return nil, err
			}
			return checkExport(in.Cached, s, conditions)
		},
		path: func(s *cachedSlice, _ *apisv1alpha2.APIExport) string {
			return replication.Path(logicalcluster.Of(s), s.Name)
		},
	}
}

func checkResource(cached *cachedresources.Resources, s *cachedSlice, conditions *[]corev1alpha1.Condition) error {
	resource, err := cached.Find(s)
	switch {
	case apierrors.IsNotFound(err):
		note(conditions, cachev1alpha1.ResourceValid, cachev1alpha1.ReasonNotFound, errNoResource)
	case err != nil:
		return err
	case resource.Status.Phase != cachev1alpha1.PhaseReady:
		note(conditions, cachev1alpha1.ResourceValid, cachev1alpha1.ReasonInvalidReference, errResourceNotReady)
	default:
		note(conditions, cachev1alpha1.ResourceValid, "", nil)
	}
	return nil
}

func checkExport(cached *cachedresources.Resources, s *cachedSlice, conditions *[]corev1alpha1.Condition) (*apisv1alpha2.APIExport, error) {
	export, err := cached.Export(s)
	switch {
	case apierrors.IsNotFound(err):
		note(conditions, cachev1alpha1.APIExportValid, apisv1alpha2.ReasonAPIExportNotFound, errNoExport)
		return nil, nil
	case err != nil:
		return nil, err
	case len(cachedresources.Published(export, s.Name)) == 0:
		note(conditions, cachev1alpha1.APIExportValid, cachev1alpha1.ReasonAPIExportInvalidReference, errNotShown)
	default:
		note(conditions, cachev1alpha1.APIExportValid, "", nil)
	}
	return export, nil
}
