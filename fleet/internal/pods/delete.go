package pods

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/dynamic"

	"github.com/kcplane/kcp/server/virtual"
)

// maxOptionsBytes is the maximum size of the options of a deletion.
const maxOptionsBytes = 64 << 10

// serveDelete deletes a pod on the cluster where it is. kcp has authorized the user for this pod, and names it by its UID.
func (p *Pods) serveDelete(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	if info.APIGroup != "" || info.Resource != resource.Resource || info.APIVersion != resource.Version || len(info.Parts) != 2 {
		virtual.Fail(w, r, apierrors.NewNotFound(resource.GroupResource(), info.Name))
		return
	}
	options := metav1.DeleteOptions{}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxOptionsBytes)).Decode(&options)
	if err != nil && !errors.Is(err, io.EOF) {
		virtual.Fail(w, r, apierrors.NewBadRequest("the options of the deletion: "+err.Error()))
		return
	}
	o, err := p.of(r.Context(), info.Namespace)
	if err == nil {
		err = o.delete(r.Context(), info.Name, options)
	}
	if err != nil {
		virtual.Fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(metav1.Status{ // the client may be away
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess,
	})
}

func (o objects) delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	s, _, err := o.find(ctx, name)
	if err != nil {
		return err
	}
	return o.call(ctx, deleted, []source{s}, func(ctx context.Context, _ int, client dynamic.ResourceInterface) error {
		return client.Delete(ctx, name, options)
	})
}
