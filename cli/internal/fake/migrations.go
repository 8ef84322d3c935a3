package fake

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	migrationv1alpha1 "github.com/kcplane/kcp/api/migration/v1alpha1"
)

const migrationsPath = "apis/migration.kcp.io/v1alpha1/logicalclustermigrations"

// serveShards serves the Shards east and west of root, and reports whether the request is for one of them.
func serveShards(w http.ResponseWriter, c *cluster, api string) bool {
	name, ok := strings.CutPrefix(api, "apis/core.kcp.io/v1alpha1/shards/")
	switch {
	case !ok || c.path != "root":
		return false
	case name != "east" && name != "west":
		refuse(w, apierrors.NewNotFound(corev1alpha1.Resource("shards"), name))
	default:
		found := &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: name}}
		found.SetGroupVersionKind(corev1alpha1.SchemeGroupVersion.WithKind("Shard"))
		reply(w, http.StatusOK, found)
	}
	return true
}

// serveMigrations serves the LogicalClusterMigrations of root, and reports whether the request is for them.
func (s *Server) serveMigrations(w http.ResponseWriter, r *http.Request, c *cluster, api string) bool {
	name, ok := strings.CutPrefix(api, migrationsPath)
	if !ok || c.path != "root" || s.Migrating == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if name = strings.TrimPrefix(name, "/"); name == "" {
		s.serveAllMigrations(w, r)
		return true
	}
	found := s.migrations[name]
	switch {
	case found == nil:
		refuse(w, apierrors.NewNotFound(migrationv1alpha1.Resource("logicalclustermigrations"), name))
	case r.Method == http.MethodDelete:
		delete(s.migrations, name)
		reply(w, http.StatusOK, found)
	default:
		s.Migrating(found)
		reply(w, http.StatusOK, found)
	}
	return true
}

// serveAllMigrations creates or lists migrations. The caller holds the lock.
func (s *Server) serveAllMigrations(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		obj := &migrationv1alpha1.LogicalClusterMigration{}
		if err := json.NewDecoder(r.Body).Decode(obj); err != nil {
			refuse(w, apierrors.NewBadRequest(err.Error()))
			return
		}
		obj.Name = fmt.Sprint(obj.GenerateName, len(s.migrations))
		if s.migrations == nil {
			s.migrations = map[string]*migrationv1alpha1.LogicalClusterMigration{}
		}
		s.migrations[obj.Name] = obj
		reply(w, http.StatusCreated, obj)
		return
	}
	list := &migrationv1alpha1.LogicalClusterMigrationList{}
	list.SetGroupVersionKind(migrationv1alpha1.SchemeGroupVersion.WithKind("LogicalClusterMigrationList"))
	for _, obj := range s.migrations {
		list.Items = append(list.Items, *obj)
	}
	reply(w, http.StatusOK, list)
}
