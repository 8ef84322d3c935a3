// Package argocd tests config/argocd with the code of Argo CD. It is a separate module, because no other module needs the dependencies of
// that code.
package argocd
