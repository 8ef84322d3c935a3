package command

import (
	"context"
	"errors"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/cli/internal/fleet"
)

var fleetEndpoints = v1alpha1.SchemeGroupVersion.WithResource("endpoints")

// errOldEndpoint is the error if the workspace has pruned fields of the Endpoint.
var errOldEndpoint = errors.New("the Endpoint \"" + v1alpha1.PodsEndpoint + "\" is stored without its verbs, because its definition is " +
	"of an older version of the fleet: apply the output of kubectl kcp fleet init again, then repeat this command")

// readPods prepares the definition of pods, and writes where kcp reads them. Other definitions stay as they are.
func readPods(ctx context.Context, objects dynamic.Interface, d *apiextensionsv1.CustomResourceDefinition, controller string) error {
	if !fleet.IsPods(d) {
		return nil
	}
	if controller == "" {
		return errors.New("--url is required for pods: the URL of the fleet's controller, as kcp reaches it")
	}
	fleet.ReadPods(d)
	endpoint, err := fleet.PodsEndpoint(controller)
	if err != nil {
		return err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(endpoint)
	if err != nil {
		return err
	}
	desired := &unstructured.Unstructured{Object: content}
	_, err = objects.Resource(fleetEndpoints).Create(ctx, desired, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return missing(ctx, objects, err)
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		stored, err := objects.Resource(fleetEndpoints).Get(ctx, v1alpha1.PodsEndpoint, metav1.GetOptions{})
		if err != nil {
			return err
		}
		stored.Object["status"] = content["status"]
		if stored, err = objects.Resource(fleetEndpoints).UpdateStatus(ctx, stored, metav1.UpdateOptions{}); err != nil {
			return err
		}
		got := &v1alpha1.Endpoint{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, got); err != nil {
			return err
		}
		if !equality.Semantic.DeepEqual(got.Status.Endpoints, endpoint.Status.Endpoints) {
			return errOldEndpoint
		}
		return nil
	})
}
