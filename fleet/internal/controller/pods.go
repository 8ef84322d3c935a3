package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/fleet/internal/identity"
	"github.com/kcplane/kcp/fleet/internal/pods"
	"github.com/kcplane/kcp/server/virtual"
	"github.com/kcplane/kcp/server/virtual/program"
)

const (
	// tunnelPath is the path of the tunnel in the view of an agent.
	tunnelPath = "/tunnel"
	// byWorkspace is the index of Assignments by workspace.
	byWorkspace = "workspace"
)

// newPods returns the pods of all workspaces.
func (f *fleet) newPods(ctx context.Context, manager ctrl.Manager) (*pods.Pods, error) {
	if (f.options.StorageCAFile == "") != (f.options.StorageName == "") {
		return nil, errors.New("--virtual-storage-client-ca-file and --virtual-storage-client-name: set both or neither")
	}
	if f.options.StorageCAFile != "" {
		ca := program.ClientCA{File: f.options.StorageCAFile, User: pods.Reader(f.options.StorageName)}
		f.options.Program.ClientCAs = append(f.options.Program.ClientCAs, ca)
	}
	err := manager.GetFieldIndexer().IndexField(ctx, &v1alpha1.Assignment{}, byWorkspace, func(o client.Object) []string {
		return []string{o.(*v1alpha1.Assignment).Spec.Workspace}
	})
	if err != nil {
		return nil, err
	}
	return pods.New(pods.Config{To: f.tunnels.To, Assignments: func(ctx context.Context, workspace string) ([]v1alpha1.Assignment, error) {
		list := &v1alpha1.AssignmentList{}
		err := f.provider.List(ctx, list, client.MatchingFields{byWorkspace: workspace})
		return list.Items, err
	}})
}

// serveTunnel serves the connection that the agent of a cluster opens. It ends with the certificate of the agent, and only the certificate
// that was issued last opens one.
func (v view) serveTunnel(w http.ResponseWriter, r *http.Request) {
	u, err := v.client.Resource(clusters).Get(r.Context(), v.cluster, metav1.GetOptions{})
	if err != nil {
		virtual.Fail(w, r, err)
		return
	}
	issued, _, _ := unstructured.NestedString(u.Object, "status", "certificate")
	certificate, err := identity.ParseCertificate([]byte(issued))
	if err != nil || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || !certificate.Equal(r.TLS.PeerCertificates[0]) {
		err := fmt.Errorf("the certificate of the agent was replaced by another one")
		virtual.Fail(w, r, apierrors.NewForbidden(clusters.GroupResource(), v.cluster, err))
		return
	}
	ctx, cancel := context.WithDeadline(r.Context(), certificate.NotAfter)
	defer cancel()
	ctrl.Log.Info("Tunnel opened", "cluster", v.cluster)
	v.tunnels.Serve(ctx, w, r, v.cluster)
	ctrl.Log.Info("Tunnel closed", "cluster", v.cluster)
}
